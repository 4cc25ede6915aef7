"""Steps as all importers build them: arguments, states, values and the ops between them."""
