package upstream

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

//go:embed expected.json
var expectedJSON []byte

// Expectation says of specs that they do not pass, and why.
type Expectation struct {
	Suite   string   `json:"suite"`
	Drivers []string `json:"drivers"`
	Spec    string   `json:"spec"`           // what the specs' names contain
	Left    bool     `json:"left,omitempty"` // they cannot pass on this machine, and are not run
	// Steps are patterns of the steps that fail, each of at least one; other steps of the specs
	// pass. None = any may fail.
	Steps  []string `json:"steps,omitempty"`
	Reason string   `json:"reason"`
}

// Expected returns the list.
func Expected() (all []Expectation, err error) {
	if err := json.Unmarshal(expectedJSON, &all); err != nil {
		return nil, fmt.Errorf("read expected.json: %w", err)
	}
	for _, e := range all {
		if e.Suite == "" || len(e.Drivers) == 0 || e.Spec == "" || e.Reason == "" {
			return nil, fmt.Errorf("expected.json: %+v: suite, drivers, spec and reason must be said", e)
		}
		for _, s := range e.Steps {
			if _, err := regexp.Compile(s); err != nil {
				return nil, fmt.Errorf("expected.json: %s: steps: %w", e.Spec, err)
			}
		}
	}
	return all, nil
}

// of returns what is expected of a spec; nil = that it passes.
func of(all []Expectation, suite, driver, spec string) *Expectation {
	for i, e := range all {
		if e.Suite == suite && slices.Contains(e.Drivers, driver) && strings.Contains(spec, e.Spec) {
			return &all[i]
		}
	}
	return nil
}

// judge compares a report with what is expected, and returns what is otherwise.
func judge(r Report, all []Expectation) error {
	var errs []error
	met := map[*Expectation]bool{}
	for _, result := range r.Results {
		e := of(all, r.Suite, r.Driver, result.Spec)
		met[e] = true
		switch {
		case e == nil && result.Result != Passed:
			errs = append(errs, fmt.Errorf("%s: %s\n%s", result.Result, result.Spec, result.Detail))
		case e != nil && result.Result == Passed:
			errs = append(errs, fmt.Errorf("passed, and is expected not to (%s): take it out of expected.json: %s", e.Reason, result.Spec))
		case e != nil && result.Result != Skipped && e.Left != (result.Result == Left):
			errs = append(errs, fmt.Errorf("%s, which is not what expected.json says: %s", result.Result, result.Spec))
		case e != nil && result.Result == Failed:
			errs = append(errs, e.judgeSteps(result))
		}
	}
	for i, e := range all {
		if e.Suite == r.Suite && slices.Contains(e.Drivers, r.Driver) && !met[&all[i]] {
			errs = append(errs, fmt.Errorf("expected.json names %q, and no spec is named so", e.Spec))
		}
	}
	return errors.Join(errs...)
}

// judgeSteps compares the failed steps with the listed ones.
func (e *Expectation) judgeSteps(r Result) error {
	if len(e.Steps) == 0 {
		return nil
	}
	var errs []error
	met := map[string]bool{}
	for step := range strings.Lines(r.Detail) {
		step, listed := strings.TrimSpace(step), false
		for _, s := range e.Steps {
			if regexp.MustCompile(s).MatchString(step) {
				met[s], listed = true, true
			}
		}
		if !listed {
			errs = append(errs, fmt.Errorf("%s: a step failed that expected.json does not list: %s", r.Spec, step))
		}
	}
	for _, s := range e.Steps {
		if !met[s] {
			errs = append(errs, fmt.Errorf("%s: no step failed that matches %q: take it out of expected.json", r.Spec, s))
		}
	}
	return errors.Join(errs...)
}
