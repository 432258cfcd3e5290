"""What proves to others who we are, where AWS keeps or makes it.

Owns: secrets that are looked up (`secretsmanager`), tokens that are signed (`mskiam`). Refuses to
know: whom they are shown to.
"""
