package covering

import "slices"

// Open is the value of a dimension that is not chosen yet.
const Open = -1

// Pairs are all sets of two of n dimensions.
func Pairs(n int) (sets [][]int) {
	for a := range n {
		for b := a + 1; b < n; b++ {
			sets = append(sets, []int{a, b})
		}
	}
	return sets
}

// Rows returns rows of indexes into the dimensions' values. For each set of dimensions
// (their numbers, ascending) every combination of their values is in some row, unless no
// row can have it. possible reports whether a row can exist. A row's values may be Open;
// possible may refuse such a row only if it refuses it with all values in their place. nil
// = every row can exist. met counts the combinations that occur, by the size of their sets.
//
// Each row begins with a combination that is not met yet, and takes the values that meet
// most of the others. The cost grows with the number of combinations times the number of
// rows.
func Rows(dims []int, sets [][]int, possible func(row []int) bool) (rows [][]int, met map[int]int) {
	if possible == nil {
		possible = func([]int) bool { return true }
	}
	c := &chooser{dims: dims, sets: sets, possible: possible, open: map[combination]bool{}}
	var all []combination
	for s, set := range sets {
		each(dims, set, func(values []int) {
			k := combination{set: s}
			copy(k.values[:], values)
			all = append(all, k)
			c.open[k] = true
		})
	}
	met = map[int]int{}
	for _, k := range all {
		if !c.open[k] {
			continue
		}
		row := c.begin(k, len(rows))
		if row == nil {
			delete(c.open, k)
			continue
		}
		for s, set := range sets {
			if k := of(s, set, row); c.open[k] {
				delete(c.open, k)
				met[len(set)]++
			}
		}
		rows = append(rows, row)
	}
	return rows, met
}

// most is how many dimensions a set may have.
const most = 4

// combination is a combination of the values of one set's dimensions.
type combination struct {
	set    int
	values [most]int
}

func of(s int, set, row []int) combination {
	k := combination{set: s}
	for i, d := range set {
		k.values[i] = row[d]
	}
	return k
}

// each calls f with every combination of values of the dimensions of a set.
func each(dims, set []int, f func(values []int)) {
	values := make([]int, len(set))
	var step func(i int)
	step = func(i int) {
		if i == len(set) {
			f(values)
			return
		}
		for v := range dims[set[i]] {
			values[i] = v
			step(i + 1)
		}
	}
	step(0)
}

type chooser struct {
	dims     []int
	sets     [][]int
	possible func([]int) bool
	open     map[combination]bool
}

// begin makes a row that has a combination; nil = none can. n spreads what does not matter.
func (c *chooser) begin(k combination, n int) []int {
	row := slices.Repeat([]int{Open}, len(c.dims))
	for i, d := range c.sets[k.set] {
		row[d] = k.values[i]
	}
	if !c.completes(slices.Clone(row)) {
		return nil
	}
	for {
		at, value, gain := Open, 0, -1
		for d, v := range row {
			if v != Open {
				continue
			}
			for i := range c.dims[d] {
				v := (i + n) % c.dims[d]
				row[d] = v
				if g := c.gain(row, d); g > gain && c.completes(slices.Clone(row)) {
					at, value, gain = d, v, g
				}
			}
			row[d] = Open
		}
		if at == Open {
			return row
		}
		row[at] = value
	}
}

// gain is how many combinations the value of a dimension meets.
func (c *chooser) gain(row []int, d int) (n int) {
	for s, set := range c.sets {
		if slices.Contains(set, d) && c.open[of(s, set, row)] {
			n++
		}
	}
	return n
}

// completes reports whether a row can be, whatever is open being chosen well.
func (c *chooser) completes(row []int) bool {
	if !c.possible(row) {
		return false
	}
	d := slices.Index(row, Open)
	if d < 0 {
		return true
	}
	for v := range c.dims[d] {
		row[d] = v
		if c.completes(row) {
			return true
		}
	}
	row[d] = Open
	return false
}
