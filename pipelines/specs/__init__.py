"""The words of a job: specs, presets, and the documents of its directory. No torch, no Ray, no disk, no clock."""
