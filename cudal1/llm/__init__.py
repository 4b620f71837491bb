"""World 2: text from models. Providers turn prompts into completions; nothing here judges them."""
