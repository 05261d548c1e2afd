// What stands in the form for a new job, for this tab: it survives a look at another page.

const DRAFT = "electra.draft";

export function keepDraft(text) {
  sessionStorage.setItem(DRAFT, text);
}

export function readDraft() {
  return sessionStorage.getItem(DRAFT) ?? "";
}
