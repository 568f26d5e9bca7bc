package nearest

import "testing"

func TestFind(t *testing.T) {
	known := []string{"nano", "micro", "mini", "small", "medium", "large"}
	cases := []struct {
		word, want string
	}{
		{"nan", "nano"}, {"mimi", "mini"}, {"samll", "small"}, {"mediun", "medium"}, {"lrage", "large"},
		{"gigantic", ""}, {"xyz", ""},
	}
	for _, c := range cases {
		got, ok := Find(c.word, known)
		if got != c.want || ok != (c.want != "") {
			t.Errorf("Find(%q) = %q, want %q", c.word, got, c.want)
		}
	}
	if got := Hint("vocabsize", []string{"vocab-size", "out"}, "--"); got != `; did you mean "--vocab-size"?` {
		t.Errorf("Hint = %q", got)
	}
}

func TestDistance(t *testing.T) {
	cases := []struct {
		a, b string
		want int
	}{{"", "abc", 3}, {"abc", "abc", 0}, {"abc", "acb", 1}, {"kitten", "sitting", 3}, {"ab", "ba", 1}}
	for _, c := range cases {
		if got := distance(c.a, c.b); got != c.want {
			t.Errorf("distance(%q, %q) = %d, want %d", c.a, c.b, got, c.want)
		}
		if got := distance(c.b, c.a); got != c.want {
			t.Errorf("distance is not symmetric on %q, %q", c.a, c.b)
		}
	}
}
