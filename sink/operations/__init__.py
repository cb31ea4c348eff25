"""Operations on a store's logs apart from appending."""
