package compile

type set[K comparable] map[K]struct{}

func (s set[K]) add(k K) { s[k] = struct{}{} }

// marks are the objects of one kind that the next Compile has to look at. A node
// that changes what such an object depends on marks it. Marks last until the end of Compile.
type marks[K comparable] struct{ of set[K] }

func newMarks[K comparable]() *marks[K] { return &marks[K]{set[K]{}} }

func (m *marks[K]) add(k K) { m.of[k] = struct{}{} }

func (m *marks[K]) remove(k K) { delete(m.of, k) }

// reset removes all marks. A set that was big is replaced: clearing and iterating a map
// cost what it once held, and the next change must not pay for the first.
func (m *marks[K]) reset() {
	switch n := len(m.of); {
	case n > 64:
		m.of = set[K]{}
	case n > 0:
		clear(m.of)
	}
}

func addTo[K, V comparable](m map[K]set[V], k K, v V) {
	if m[k] == nil {
		m[k] = set[V]{}
	}
	m[k].add(v)
}

func removeFrom[K, V comparable](m map[K]set[V], k K, v V) {
	if delete(m[k], v); len(m[k]) == 0 {
		delete(m, k)
	}
}

// lookup returns the entry of m at k, made by mk when absent.
func lookup[K comparable, V any](m map[K]*V, k K, mk func() *V) *V {
	v := m[k]
	if v == nil {
		v = mk()
		m[k] = v
	}
	return v
}
