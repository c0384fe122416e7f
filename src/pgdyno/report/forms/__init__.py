"""Print the blocks of a document as terminal text, Markdown or HTML."""
