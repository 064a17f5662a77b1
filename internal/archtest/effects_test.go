package archtest

import "testing"

// A word counts where it stands alone, not as a part of another.
func TestGivenFindsWholeFlags(t *testing.T) {
	for text, want := range map[string]bool{
		`run("--drops")`: true, `run --drops=true`: true, "$ netctl monitor --drops": true,
		`"drops": effect`: false, `--drops-more`: false, `x--drops`: false, "": false,
	} {
		if got := given([]string{"", text}, []string{"-drops", "--drops"}); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

// Command lines of testdata that a test's file names are the test's.
func TestTestDataBelongsToItsTest(t *testing.T) {
	all, err := allTests()
	if err != nil {
		t.Fatal(err)
	}
	if !given(all["TestEveryCommandPrintsItsGolden"], []string{"-consumed", "-c"}) {
		t.Error("the commands that TestEveryCommandPrintsItsGolden runs are not found")
	}
}
