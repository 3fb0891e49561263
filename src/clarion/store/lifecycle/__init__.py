"""Operations on the rows of all tables, driven by their declarations."""
