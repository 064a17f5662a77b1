package apiserver

import (
	"slices"
	"strings"

	"github.com/contiv/netplugin/v2/internal/model"
)

// rangeTexts writes which addresses of usable are held and which are free, as
// comma-separated ranges. The held ranges may overlap and reach beyond usable.
func rangeTexts(usable model.AddrRange, held []model.AddrRange) (allocated, available string) {
	var in, out []model.AddrRange
	slices.SortFunc(held, func(a, b model.AddrRange) int { return a.First.Compare(b.First) })
	next, more := usable.First, usable.IsValid() // first address not yet classified
	for _, h := range held {
		first, last := h.First, h.Last
		if !more || last.Less(next) || usable.Last.Less(first) {
			continue
		}
		if first.Less(next) {
			first = next
		}
		if usable.Last.Less(last) {
			last = usable.Last
		}
		if next.Less(first) {
			out = append(out, model.AddrRange{First: next, Last: first.Prev()})
		}
		if n := len(in); n > 0 && in[n-1].Last.Next() == first {
			in[n-1].Last = last
		} else {
			in = append(in, model.AddrRange{First: first, Last: last})
		}
		next, more = last.Next(), last.Less(usable.Last)
	}
	if more {
		out = append(out, model.AddrRange{First: next, Last: usable.Last})
	}
	return joinRanges(in), joinRanges(out)
}

func joinRanges(rs []model.AddrRange) string {
	var parts []string
	for _, r := range rs {
		if r.First == r.Last {
			parts = append(parts, r.First.String())
		} else {
			parts = append(parts, r.String())
		}
	}
	return strings.Join(parts, ", ")
}
