package eval

import "testing"

// TestSummarise is worked out by hand.
func TestSummarise(t *testing.T) {
	item := func(task string, label int) *Item { return &Item{Task: task, Label: label} }
	scores := []Score{
		// Sums −3, −2; means −1, −2; per byte −1, −0.2.
		{Item: item("a", 0), Choices: []ChoiceScore{{-3, 3, 3}, {-2, 1, 10}}},
		// All equal in sum: the first wins. Means −2, −1, −2; per byte −1, −1, −0.5.
		{Item: item("b", 2), Choices: []ChoiceScore{{-2, 1, 2}, {-2, 2, 2}, {-2, 1, 4}}, Cut: 3, Alone: true},
		{Item: item("a", 1), Choices: []ChoiceScore{{-9, 1, 1}, {-1, 1, 1}}},
	}
	for i, want := range [][3]int{{1, 0, 1}, {0, 1, 2}, {1, 1, 1}} {
		if got := [3]int{scores[i].Sum(), scores[i].PerToken(), scores[i].PerByte()}; got != want {
			t.Errorf("picks of item %d: %v, want %v", i, got, want)
		}
	}
	all, tasks := Summarise(scores)
	if len(tasks) != 2 || tasks[0].Task != "a" || tasks[1].Task != "b" || tasks[0].N != 2 || tasks[1].N != 1 || all.N != 3 {
		t.Fatalf("tasks %+v", tasks)
	}
	a, b := tasks[0], tasks[1]
	close64(t, "a acc", a.Acc.Value, 0.5, 1e-12)
	close64(t, "a acc stderr", a.Acc.StdErr, 0.5, 1e-12) // √(¼/1)
	close64(t, "a norm", a.Norm.Value, 1, 1e-12)
	close64(t, "a norm stderr", a.Norm.StdErr, 0, 1e-12)
	close64(t, "a bytes", a.Bytes.Value, 0.5, 1e-12)
	close64(t, "a right", a.LogLike, -2, 1e-12)
	close64(t, "b acc", b.Acc.Value, 0, 1e-12)
	close64(t, "b bytes", b.Bytes.Value, 1, 1e-12)
	close64(t, "b chance", b.Chance, 1./3, 1e-12)
	if b.Cut != 1 || b.Alone != 1 || a.Cut != 0 || all.Cut != 1 {
		t.Errorf("cut %d, alone %d", b.Cut, b.Alone)
	}
	close64(t, "all acc", all.Acc.Value, 1./3, 1e-12)
	close64(t, "all acc stderr", all.Acc.StdErr, 1./3, 1e-12) // √(1/3·2/3/2)
	close64(t, "all chance", all.Chance, 4./9, 1e-12)
}
