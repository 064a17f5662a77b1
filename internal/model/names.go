package model

import (
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// MaxName is the length limit of names, in characters, unless said otherwise.
const MaxName = 64

// MaxCfgdTag is the length limit of configured tags.
const MaxCfgdTag = 128

// Names follow the 1.x contract: DNS-like labels of letters, digits and inner
// hyphens, joined by dots.

// isName reports whether s is labels joined by dots. Names and ids are matched by
// hand: compiling two regular expressions took a third of contivk8s' start.
func isName(s string) bool {
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		for i := range len(label) {
			if c := label[i]; !isAlnum(c) && c != '-' {
				return false
			}
		}
	}
	return true
}

func isAlnum(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

const wantName = "must be letters, digits and inner hyphens, in labels joined by dots, at most 64 characters"

func parseName(field, s string, limit int) error {
	switch {
	case s == "":
		return InvalidField(field, s, "must not be empty")
	case len(s) > limit || !isName(s):
		if limit != MaxName {
			return InvalidField(field, s, strings.Replace(wantName, "64", itoa(limit), 1))
		}
		return InvalidField(field, s, wantName)
	}
	return nil
}

// ParseSetName checks the name of a set of applied documents. The error is of kind ErrInvalid.
func ParseSetName(s string) error { return parseName("set", s, MaxName) }

func optionalName(field, s string, limit int) error {
	if s == "" {
		return nil
	}
	return parseName(field, s, limit)
}

// parseKey parses "tenant:name".
func parseKey(field, s string, limit int) (TenantName, string, error) {
	tenant, name, ok := strings.Cut(s, ":")
	if !ok {
		return "", "", InvalidField("key", s, "must be tenant:"+strings.TrimSuffix(field, "Name"))
	}
	t, err := ParseTenantName(tenant)
	if err != nil {
		return "", "", err
	}
	if err := parseName(field, name, limit); err != nil {
		return "", "", err
	}
	return t, name, nil
}

func split2(kind, s string) (tenant, name string, err error) {
	p := strings.Split(s, ":")
	if len(p) != 2 {
		return "", "", InvalidField("key", s, "must be tenant:"+kind)
	}
	if err := parseName("tenantName", p[0], MaxName); err != nil {
		return "", "", err
	}
	if err := parseName(kind+"Name", p[1], MaxName); err != nil {
		return "", "", err
	}
	return p[0], p[1], nil
}

// checkText checks a text for people: printable, at most limit bytes.
func checkText(field, s string, limit int) error {
	if len(s) > limit || !printable(s) {
		return InvalidField(field, s, fmt.Sprintf("must be at most %d printable characters", limit))
	}
	return nil
}

// printable reports whether each character of a text is shown as what it is: none
// steers a terminal (ESC, U+009B), turns the direction of text around (U+202E) or has
// no width.
func printable(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r == utf8.RuneError || !unicode.IsGraphic(r) })
}

// hasControlCharacters reports whether a text, of several lines perhaps, holds controls of a terminal
// other than tabs and ends of lines, or marks that turn the direction of text around.
func hasControlCharacters(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool {
		return unicode.IsControl(r) && r != '\t' && r != '\n' && r != '\r' || unicode.Is(unicode.Bidi_Control, r)
	})
}

// checkRawText checks that the text, as the user wrote it, parses to the value it is kept with.
func checkRawText(field, raw string, want netip.Prefix, parse func(string) (netip.Prefix, error)) error {
	if raw == "" {
		return nil
	}
	if parse == nil || !want.IsValid() {
		return InvalidField(field, raw, "must be empty, as the parsed subnet is")
	}
	got, err := parse(raw)
	if err == nil && got != want {
		err = InvalidField(field, raw, fmt.Sprintf("must mean the parsed subnet %s", want))
	}
	return err
}

// pattern compiles when it is first asked for: contivk8s, which starts for every
// container and needs none of them, would spend a tenth of its start on them.
func pattern(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}
