// Round numbers along an axis. Pure.

/** About `wanted` round numbers that span the values. */
export function ticks(least, most, wanted) {
  if (!(most > least)) return [least];
  const raw = (most - least) / Math.max(1, wanted);
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= raw);
  const found = [];
  for (let place = Math.ceil(least / step); place * step <= most * (1 + 1e-9); place += 1) found.push(Number((place * step).toPrecision(12)));
  return found;
}

/** Bounds around values, a little apart from them; around 1 where there are none. */
export function bounds(values) {
  let [least, most] = [Infinity, -Infinity];
  for (const value of values) {
    if (value < least) least = value;
    if (value > most) most = value;
  }
  if (!Number.isFinite(least)) return [0, 1];
  const margin = (most - least) * 0.05 || Math.abs(most) * 0.1 || 1;
  return [least >= 0 ? Math.max(0, least - margin) : least - margin, most + margin];
}

/** At most so many points, the least and the greatest of each stretch among them. `points`: [{x, y}] by x. */
export function thinned(points, most) {
  if (points.length <= most) return points;
  const size = Math.ceil(points.length / (most / 2));
  const kept = [];
  for (let from = 0; from < points.length; from += size) {
    const stretch = points.slice(from, from + size);
    const low = stretch.reduce((one, other) => (other.y < one.y ? other : one));
    const high = stretch.reduce((one, other) => (other.y > one.y ? other : one));
    kept.push(...(low === high ? [low] : low.x < high.x ? [low, high] : [high, low]));
  }
  return kept;
}

/** The point nearest to an x, by halving. */
export function nearest(points, x) {
  let [low, high] = [0, points.length - 1];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (points[middle].x < x) low = middle;
    else high = middle;
  }
  return x - points[low]?.x <= points[high]?.x - x ? points[low] : points[high];
}
