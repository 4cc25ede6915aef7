"""Programs with a question each: is the tensor that it returns equal on two replicas, and why?"""
