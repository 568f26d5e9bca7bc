package bpe

// The byte alphabet of GPT-2 writes each byte as one printable character, so that tokens can stand in JSON strings:
// bytes 33–126, 161–172 and 174–255 stand for themselves, the other 68 take U+0100 upward in order.

// byteChar is the character of each byte; charByte is its inverse and byteOrder lists the bytes by ascending character,
// which is the order in which GPT-2, Llama 3 and the trainer of Hugging Face tokenizers number the single bytes.
var byteChar, charByte, byteOrder = buildAlphabet()

func buildAlphabet() (chars [256]rune, inverse map[rune]byte, order [256]byte) {
	inverse = make(map[rune]byte, 256)
	n := 0
	for b := range 256 {
		if 33 <= b && b <= 126 || 161 <= b && b <= 172 || b >= 174 {
			chars[b] = rune(b)
			order[n] = byte(b)
			n++
		}
	}
	next := rune(0x100)
	for b := range 256 {
		if chars[b] == 0 {
			chars[b] = next
			next++
			order[n] = byte(b)
			n++
		}
	}
	for b, c := range chars {
		inverse[c] = byte(b)
	}
	return chars, inverse, order
}

// toAlphabet writes bytes in the byte alphabet.
func toAlphabet(token []byte) string {
	out := make([]rune, len(token))
	for i, b := range token {
		out[i] = byteChar[b]
	}
	return string(out)
}

// fromAlphabet reads the byte alphabet; ok is false when s has a character outside it.
func fromAlphabet(s string) (token []byte, ok bool) {
	token = make([]byte, 0, len(s))
	for _, c := range s {
		b, known := charByte[c]
		if !known {
			return nil, false
		}
		token = append(token, b)
	}
	return token, true
}
