package model

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Selector selects endpoints of one tenant by what their identity stands for.
// Empty fields select everything; all that is set is required.
type Selector struct {
	Tenant           TenantName        `json:"tenant"`
	Network          NetworkName       `json:"network,omitempty"`
	Group            GroupName         `json:"group,omitempty"`
	MatchLabels      map[string]string `json:"matchLabels,omitempty"`
	MatchExpressions []Requirement     `json:"matchExpressions,omitempty"`
	// Namespaces is required of the labels of the endpoint's namespace; if there is
	// any, an endpoint in no namespace is not selected.
	Namespaces []Requirement `json:"namespaces,omitempty"`
}

// Requirement is one requirement of a selector about a label, with the meaning
// that it has in Kubernetes: NotIn and DoesNotExist hold for what has no such label.
type Requirement struct {
	Key      string   `json:"key"`
	Operator Operator `json:"operator"`
	Values   []string `json:"values,omitempty"` // of In and NotIn
}

// Operator says how a Requirement compares.
type Operator string

// The operators that there are.
const (
	OpIn           Operator = "In"
	OpNotIn        Operator = "NotIn"
	OpExists       Operator = "Exists"
	OpDoesNotExist Operator = "DoesNotExist"
)

// Limits of one selector.
const (
	MaxSelectorLabels = 32 // labels and expressions together
	MaxSelectorValues = 64 // of one expression
)

// IsZero reports whether a selector is the zero value, which no policy has.
func (s Selector) IsZero() bool {
	return s.Tenant == "" && s.Network == "" && s.Group == "" && len(s.MatchLabels) == 0 && len(s.MatchExpressions) == 0 && len(s.Namespaces) == 0
}

// Requirements returns all that the selector requires of labels, sorted by key;
// one of MatchLabels is an In with one value.
func (s Selector) Requirements() []Requirement {
	out := make([]Requirement, 0, len(s.MatchLabels)+len(s.MatchExpressions))
	for k, v := range s.MatchLabels {
		out = append(out, Requirement{k, OpIn, []string{v}})
	}
	return canonical(append(out, s.MatchExpressions...))
}

// OfNamespace returns all that the selector requires of the namespace's labels,
// sorted by key.
func (s Selector) OfNamespace() []Requirement { return canonical(slices.Clone(s.Namespaces)) }

// canonical sorts requirements and their values, each once.
func canonical(all []Requirement) []Requirement {
	for i := range all {
		all[i].Values = slices.Compact(slices.Sorted(slices.Values(all[i].Values)))
	}
	slices.SortFunc(all, compareRequirements)
	return slices.CompactFunc(all, func(a, b Requirement) bool { return compareRequirements(a, b) == 0 })
}

func compareRequirements(a, b Requirement) int {
	if c := strings.Compare(a.Key, b.Key); c != 0 {
		return c
	}
	if c := strings.Compare(string(a.Operator), string(b.Operator)); c != 0 {
		return c
	}
	return slices.Compare(a.Values, b.Values)
}

// Holds reports whether labels meet the requirement. An operator that is not known
// holds for none.
func (r Requirement) Holds(labels map[string]string) bool {
	v, has := labels[r.Key]
	switch r.Operator {
	case OpIn:
		return has && slices.Contains(r.Values, v)
	case OpNotIn:
		return !has || !slices.Contains(r.Values, v)
	case OpExists:
		return has
	case OpDoesNotExist:
		return !has
	}
	return false
}

// Selects reports whether an identity belongs to the selection.
func (s Selector) Selects(r IdentityRecord) bool {
	if s.Tenant != r.Network.Tenant || s.Network != "" && s.Network != r.Network.Name ||
		s.Group != "" && s.Group != r.Group || r.LabelsUnknown() && s.UsesLabels() {
		return false
	}
	for k, v := range s.MatchLabels {
		if got, ok := r.Labels[k]; !ok || got != v {
			return false
		}
	}
	for _, e := range s.MatchExpressions {
		if !e.Holds(r.Labels) {
			return false
		}
	}
	for _, e := range s.Namespaces {
		if r.Namespace == "" || !e.Holds(r.NamespaceLabels) {
			return false
		}
	}
	return true
}

// UsesLabels reports whether labels decide what is selected, of endpoints or of
// their namespaces.
func (s Selector) UsesLabels() bool {
	return len(s.MatchLabels)+len(s.MatchExpressions)+len(s.Namespaces) > 0
}

// WithoutLabels is the selector without what it asks of labels.
func (s Selector) WithoutLabels() Selector {
	return Selector{Tenant: s.Tenant, Network: s.Network, Group: s.Group}
}

// String returns the canonical text: selectors with the same text select the
// same. It begins with the tenant.
func (s Selector) String() string {
	var b strings.Builder
	b.WriteString(string(s.Tenant) + ":")
	if s.Network != "" {
		b.WriteString(" network " + labelText(string(s.Network)))
	}
	if s.Group != "" {
		b.WriteString(" group " + labelText(string(s.Group)))
	}
	writeRequirements(&b, s.Requirements())
	if of := s.OfNamespace(); len(of) > 0 {
		b.WriteString(" in namespaces")
		writeRequirements(&b, of)
	}
	return b.String()
}

func writeRequirements(b *strings.Builder, all []Requirement) {
	for i, r := range all {
		if i > 0 {
			b.WriteByte(',')
		}
		values := make([]string, len(r.Values))
		for i, v := range r.Values {
			values[i] = labelText(v)
		}
		list := strings.Join(values, ",")
		b.WriteByte(' ')
		switch {
		case r.Operator == OpIn && len(values) == 1:
			b.WriteString(labelText(r.Key) + "=" + list)
		case r.Operator == OpExists:
			b.WriteString(labelText(r.Key))
		case r.Operator == OpDoesNotExist:
			b.WriteString("!" + labelText(r.Key))
		default:
			b.WriteString(labelText(r.Key) + " " + strings.ToLower(string(r.Operator)) + " (" + list + ")")
		}
	}
}

// labelText quotes what could be taken for something else.
func labelText(s string) string {
	if s == "" || strings.ContainsFunc(s, func(r rune) bool { return r > 0x7e || !isAlnum(byte(r)) && !strings.ContainsRune("-_./", r) }) {
		return strconv.Quote(s)
	}
	return s
}

// Equal compares two selectors by their text.
func (s Selector) Equal(o Selector) bool { return s.String() == o.String() }

// Validate checks names, the syntax of labels (Kubernetes') and that the selector can
// select something. field names it in the error, which is of kind ErrInvalid.
func (s Selector) Validate(field string) error {
	if _, err := ParseTenantName(string(s.Tenant)); err != nil {
		return err
	}
	if err := optionalName(field+".network", string(s.Network), MaxName); err != nil {
		return err
	}
	if err := optionalName(field+".group", string(s.Group), MaxName); err != nil {
		return err
	}
	if n := len(s.MatchLabels) + len(s.MatchExpressions); n > MaxSelectorLabels {
		return InvalidField(field+".matchExpressions", n, fmt.Sprintf("must be, together with matchLabels, at most %d", MaxSelectorLabels))
	}
	for _, k := range slices.Sorted(maps.Keys(s.MatchLabels)) {
		if err := validLabel(field+".matchLabels", k, s.MatchLabels[k]); err != nil {
			return err
		}
	}
	for _, r := range s.MatchExpressions {
		if err := r.validate(field + ".matchExpressions"); err != nil {
			return err
		}
	}
	if n := len(s.Namespaces); n > MaxSelectorLabels {
		return InvalidField(field+".namespaces", n, fmt.Sprintf("must be at most %d", MaxSelectorLabels))
	}
	for _, r := range s.Namespaces {
		if err := r.validate(field + ".namespaces"); err != nil {
			return err
		}
	}
	if k, nobody := s.contradicts(); nobody {
		return InvalidField(field, k, "must be able to select something: its requirements on this label contradict each other")
	}
	return nil
}

// MatchesNone reports whether no endpoint can meet the selector's requirements on labels.
func (s Selector) MatchesNone() bool {
	_, nobody := s.contradicts()
	return nobody
}

// contradicts finds a label whose requirements never hold together.
func (s Selector) contradicts() (key string, nobody bool) {
	for _, all := range [][]Requirement{s.Requirements(), s.OfNamespace()} {
		if key, nobody = contradiction(all); nobody {
			return key, true
		}
	}
	return "", false
}

func (r Requirement) validate(field string) error {
	if err := validLabel(field, r.Key, ""); err != nil {
		return err
	}
	if _, err := parseEnum(field+".operator", string(r.Operator), OpIn, OpNotIn, OpExists, OpDoesNotExist); err != nil {
		return err
	}
	switch byValue := r.Operator == OpIn || r.Operator == OpNotIn; {
	case byValue && len(r.Values) == 0:
		return InvalidField(field+".values", r.Key, "must not be empty with operator "+string(r.Operator))
	case !byValue && len(r.Values) > 0:
		return InvalidField(field+".values", r.Key, "must be empty with operator "+string(r.Operator))
	case len(r.Values) > MaxSelectorValues:
		return InvalidField(field+".values", len(r.Values), fmt.Sprintf("must be at most %d", MaxSelectorValues))
	}
	for _, v := range r.Values {
		if err := validLabel(field, r.Key, v); err != nil {
			return err
		}
	}
	return nil
}

// contradiction finds a label whose requirements no endpoint can meet.
func contradiction(all []Requirement) (key string, empty bool) {
	for i, r := range all {
		for _, o := range all[i+1:] {
			if o.Key == r.Key && (r.Operator == OpDoesNotExist && o.needsLabel() || o.Operator == OpDoesNotExist && r.needsLabel()) {
				return r.Key, true
			}
		}
		if r.Operator != OpIn {
			continue
		}
		fits := func(v string) bool {
			for _, o := range all {
				if o.Key == r.Key && !o.Holds(map[string]string{r.Key: v}) {
					return false
				}
			}
			return true
		}
		if !slices.ContainsFunc(r.Values, fits) {
			return r.Key, true
		}
	}
	return "", false
}

func (r Requirement) needsLabel() bool { return r.Operator == OpIn || r.Operator == OpExists }

// validLabel checks a label that a selector names: a key of at most 63 letters,
// digits and "-_.", after a DNS name and a slash if any; a value likewise, or empty.
func validLabel(field, key, value string) error {
	prefix, name, ok := strings.Cut(key, "/")
	if !ok {
		prefix, name = "", key
	}
	if ok && (prefix == "" || len(prefix) > 253 || !isName(prefix)) || !isLabelText(name) {
		return InvalidField(field, key, "must be a label: at most 63 letters, digits, \"-\", \"_\" and \".\", the first and last a letter or digit, after a DNS name and a slash if any")
	}
	if value != "" && !isLabelText(value) {
		return InvalidField(field, value, "must be empty or at most 63 letters, digits, \"-\", \"_\" and \".\", the first and last a letter or digit")
	}
	return nil
}

func isLabelText(s string) bool {
	if s == "" || len(s) > 63 || !isAlnum(s[0]) || !isAlnum(s[len(s)-1]) {
		return false
	}
	for i := range len(s) {
		if c := s[i]; !isAlnum(c) && c != '-' && c != '_' && c != '.' {
			return false
		}
	}
	return true
}
