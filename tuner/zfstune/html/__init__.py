"""What pages of HTML share: frame, style, and the colours of stages."""
