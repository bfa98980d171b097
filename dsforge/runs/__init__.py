"""Floor 5: runs that were started: which there are, what they did, their logs, how to stop one."""
