"""Programs as HTML, as pictures, as files of Graphviz, and the table of ops."""
