"""Load shedding: which rows are sampled, and the weight of each."""
