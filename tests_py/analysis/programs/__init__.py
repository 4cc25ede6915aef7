"""Programs whose expectations are comments on their lines; ``tests_py.analysis.annotated`` describes and reads them."""
