package matrix

import "testing"

func TestRowsPrint(t *testing.T) {
	rows, met := Rows()
	t.Log(len(rows), met)
	for _, r := range rows {
		t.Log(r.ID(), r)
	}
}
