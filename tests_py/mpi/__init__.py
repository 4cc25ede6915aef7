"""Sessions of several processes of MPI: same bits, faults, checkpoints, recordings, reports."""
