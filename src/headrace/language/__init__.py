"""The SQL dialect: lexer and parser, binder (from syntax to the algebra), and statements."""
