"""Variables: groups of replicas, mapped files, remote memory."""
