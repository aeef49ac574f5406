"""Views of a run's results: a page, a terminal, Markdown and JUnit XML."""
