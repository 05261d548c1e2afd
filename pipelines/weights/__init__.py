"""Weights that were not made by this job: read from their files, checked against the spec, kept with the job."""
