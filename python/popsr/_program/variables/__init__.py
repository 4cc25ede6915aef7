"""Variables, constants and remote variables: their data by groups of replicas, and their place in the program."""
