"""What a run would have met on a card, by line: recorded in every process, gathered at the end, shown to a person.

``recording`` runs in each process, ``launching`` around all of them. ``model`` is what goes from one to the other and
into the JSON; ``findings`` says what is to be mended, ``text`` and ``html`` show it.
"""
