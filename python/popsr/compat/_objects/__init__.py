"""The objects of PopART that programs for PopXL reach by private names: ``ir._pb_ir``, ``graph._pb_graph`` and so on.

They answer from the program. A name that they do not have is an AttributeError with the nearest one.
"""
