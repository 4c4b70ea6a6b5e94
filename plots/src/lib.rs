//! Charts as SVG, PNG and terminal text. Knows nothing of models.
