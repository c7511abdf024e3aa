"""PSoup tuple by tuple: the eddy with its pools, and the probes of one SteM by many hybrid structs, as baselines with counters."""
