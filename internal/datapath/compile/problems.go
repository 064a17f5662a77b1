package compile

import (
	"cmp"
	"slices"
)

// Problem is an input that could not be compiled as it stands, and what stands
// in for it.
type Problem struct {
	Object string // such as "group blue:web" or "rule blue:p1:1"
	Text   string // one sentence
}

func (p Problem) String() string { return p.Object + ": " + p.Text }

// problems is the set of present problems, at most one text an object and
// aspect, and its sorted list.
type problems struct {
	texts  map[string]string
	sorted []Problem
	stale  bool
}

// set records an object's problem; an empty text clears it.
func (p *problems) set(object, text string) {
	old, had := p.texts[object]
	switch {
	case text == "" && had:
		delete(p.texts, object)
		p.stale = true
	case text != "" && text != old:
		if p.texts == nil {
			p.texts = map[string]string{}
		}
		p.texts[object] = text
		p.stale = true
	}
}

// list returns the problems sorted by object. The caller must not change it.
func (p *problems) list() []Problem {
	if p.stale {
		p.sorted = make([]Problem, 0, len(p.texts))
		for o, t := range p.texts {
			p.sorted = append(p.sorted, Problem{o, t})
		}
		slices.SortFunc(p.sorted, func(a, b Problem) int { return cmp.Compare(a.Object, b.Object) })
		p.stale = false
	}
	return p.sorted
}
