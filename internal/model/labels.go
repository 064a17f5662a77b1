package model

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// LabelFilter names the labels that are no part of an endpoint's identity, each
// by its name or by a prefix that ends in "." or "/"; an entry with "!" before a name
// is an exception. It is sorted and holds no entry twice; ParseLabelFilter, which takes
// no exceptions, makes it so.
type LabelFilter []string

const filterException = "!"

// MaxLabelFilter is how many entries a LabelFilter has at most.
const MaxLabelFilter = 256

// filterDefault is the entry of a request that stands for defaultLabelFilter.
const filterDefault = "default"

// defaultLabelFilter holds what runtimes and their tools give by themselves,
// another value for nearly each container or each build.
var defaultLabelFilter = func() LabelFilter {
	f := LabelFilter{
		"annotation.", "com.docker.", "desktop.docker.", "io.cri-containerd.", "io.kubernetes.", "io.podman.", "nerdctl/", "org.opencontainers.",
		"batch.kubernetes.io/", "job-name", "statefulset.kubernetes.io/", "apps.kubernetes.io/",
		"controller-revision-hash", "controller-uid", "pod-template-generation", "pod-template-hash",
		"build-date", "maintainer", "vcs-ref", "org.label-schema.",
	}
	slices.Sort(f)
	return f
}()

// ParseLabelFilter reads the entries of a request, of which "default" stands for
// the list that a new cluster has. No entries are no filter: nil. The error is of
// kind ErrInvalid.
func ParseLabelFilter(field string, entries []string) (LabelFilter, error) {
	if len(entries) > MaxLabelFilter {
		return nil, InvalidField(field, len(entries), fmt.Sprintf("must be at most %d entries", MaxLabelFilter))
	}
	var f LabelFilter
	for _, e := range entries {
		if e == filterDefault {
			f = append(f, defaultLabelFilter...)
			continue
		}
		var begin bool // some label begins so
		if strings.HasSuffix(e, ".") || strings.HasSuffix(e, "/") {
			begin = validLabel(field, e+"x", "") == nil || validLabel(field, e+"x/x", "") == nil
		}
		if !begin && validLabel(field, e, "") != nil {
			return nil, InvalidField(field, e, `must be the name of a label, or the beginning of one up to a "." or "/", or "default"`)
		}
		f = append(f, e)
	}
	slices.Sort(f)
	for i := range f {
		if i > 0 && f[i] == f[i-1] {
			return nil, InvalidField(field, f[i], `must be there once ("default" stands for the whole default list)`)
		}
	}
	if len(f) > MaxLabelFilter {
		return nil, InvalidField(field, len(f), fmt.Sprintf("must be at most %d entries, including the expansion of \"default\"", MaxLabelFilter))
	}
	return f, nil
}

// Entries returns what ParseLabelFilter reads as the filter, with "default" for the
// default list where all of it is in the filter.
func (f LabelFilter) Entries() []string {
	out := []string{filterDefault}
	for _, e := range f {
		if !defaultLabelFilter.has(e) {
			out = append(out, e)
		}
	}
	if len(out)-1+len(defaultLabelFilter) != len(f) {
		return f
	}
	return out
}

// Covers reports whether a label is no part of identities.
func (f LabelFilter) Covers(key string) bool {
	if f.has(filterException + key) {
		return false
	}
	for i := range len(key) {
		if c := key[i]; (c == '.' || c == '/') && f.has(key[:i+1]) {
			return true
		}
	}
	return f.has(key)
}

func (f LabelFilter) has(entry string) bool {
	_, ok := slices.BinarySearch(f, entry)
	return ok
}

// Identifying returns those of an endpoint's labels that are part of its identity;
// nil when none are. Labels that no selector could name never are.
func (f LabelFilter) Identifying(labels map[string]string) map[string]string {
	var out map[string]string
	for k, v := range labels {
		if SelectableLabel(k, v) && !f.Covers(k) {
			if out == nil {
				out = map[string]string{}
			}
			out[k] = v
		}
	}
	return out
}

// Equal compares two filters by their entries.
func (f LabelFilter) Equal(o LabelFilter) bool { return slices.Equal(f, o) }

// And returns the filter that covers what either of two covers.
func (f LabelFilter) And(o LabelFilter) LabelFilter {
	both := slices.Concat(f, o)
	slices.Sort(both)
	return slices.DeleteFunc(slices.Compact(both), func(e string) bool {
		key, is := strings.CutPrefix(e, filterException)
		return is && (f.Covers(key) || o.Covers(key))
	})
}

// except returns the filter with exceptions, which has none.
func (f LabelFilter) except(keys []string) LabelFilter {
	if len(keys) == 0 {
		return f
	}
	out := slices.Clone(f)
	for _, k := range keys {
		out = append(out, filterException+k)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// SelectableLabel reports whether selectors can name a label by its syntax: others are no
// part of an endpoint's identity.
func SelectableLabel(key, value string) bool { return validLabel("labels", key, value) == nil }

// LabelKeys returns the labels that a selector requires something of, sorted.
func (s Selector) LabelKeys() []string {
	keys := slices.Collect(maps.Keys(s.MatchLabels))
	for _, r := range s.MatchExpressions {
		keys = append(keys, r.Key)
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}
