package flags

import (
	"strings"
	"testing"
)

// TestFlagsMayStandAmongArguments: one dash or two, values after "=" or a space, flags among arguments as 1.x and
// scripts have them; errors are in netctl's words.
func TestFlagsMayStandAmongArguments(t *testing.T) {
	for line, want := range map[string]string{
		"-tenant blue a b":          "blue/false [a b]",
		"a --tenant=blue b -j":      "blue/true [a b]",
		"a -t blue -- -j --tenant":  "blue/false [a -j --tenant]",
		"-json=false - a":           "/false [- a]",
		"-t -j a":                   "flag --tenant needs a value: TENANT; -j follows, which is a flag (write --tenant=-j if that is the value)",
		"--tenant --json=true a":    "flag --tenant needs a value: TENANT; --json=true follows",
		"-t=-j a":                   "-j/false [a]",
		"-t -1 a":                   "-1/false [a]",
		"a -t":                      "flag --tenant needs a value: TENANT",
		"--tenants blue":            "unknown flag --tenants; did you mean --tenant?",
		"-x=1 a":                    "unknown flag -x",
		"a ---t blue":               "unknown flag ---t",
		"-t blue -=x":               "unknown flag -=x",
		"-j=perhaps a":              `flag --json "perhaps": must be true or false`,
		"-t blue a --tenant green":  `flag --tenant is given twice, "blue" and "green"`,
		"-t blue a --tenant blue b": "blue/false [a b]",
	} {
		var s Set
		tenant, json := "", false
		s.String(&tenant, "tenant, t", "TENANT", "whose")
		s.Bool(&json, "json, j", "as JSON")
		args, err := s.Parse(strings.Fields(line))
		got := tenant + "/" + map[bool]string{true: "true", false: "false"}[json] + " [" + strings.Join(args, " ") + "]"
		if err != nil {
			got = err.Error()
		}
		if !strings.HasPrefix(got, want) {
			t.Errorf("%q: %s, want %s", line, got, want)
		}
	}
}
