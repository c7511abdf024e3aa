"""From text to the algebra, and back: lexer, parser, binder, renderer."""
