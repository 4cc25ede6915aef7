"""What every room needs: texts of errors, arguments, host arrays, exact numbers. It knows no program."""
