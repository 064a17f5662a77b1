package netctl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/base/flags"
)

type applyOptions struct {
	common
	files  []string
	dryRun bool
	within time.Duration
	set    string
	prune  bool
	saved  string // file with a plan
	// manifests: documents may be manifests of Kubernetes, in namespace where they name none.
	manifests bool
	namespace string
	// planDelete: show what deletions would do, and delete nothing.
	planDelete bool
}

func newApplyOptions(base common, fs *flags.Set) *applyOptions {
	o := &applyOptions{common: base}
	fs.List(&o.files, "file, f", "FILE", "file, directory, or - for standard input")
	return o
}

func newApply(base common) *command {
	c := &command{
		name:  "apply",
		short: "Make objects be as YAML documents say: all of them, or none",
		examples: []string{
			"netctl apply -f blue.yaml",
			"netctl apply -f cluster.d/ --dry-run",
			"netctl apply -f blue.d/ --prune --set blue",
			"netctl apply --plan plan.json",
			"netctl export --tenant blue | netctl --netmaster http://other:9999 apply -f -",
		},
	}
	o := newApplyOptions(base, &c.flags)
	c.flags.Bool(&o.dryRun, "dry-run, n", "say what would be done, change nothing")
	setFlags(o, &c.flags)
	c.flags.String(&o.saved, "plan", "FILE", "make the changes of a plan ('netctl plan -o json'), unless it would be another one by now; - for standard input")
	confirmFlag(&c.flags, &o.within)
	o.overrideFlag(&c.flags)
	o.changeFlags(&c.flags, "json, j", "print a JSON array of kind, key and action")
	c.run = bindRun(o, runApply, nil)
	return c
}

// setFlags are the flags that name a set of objects.
func setFlags(o *applyOptions, fs *flags.Set) {
	fs.Bool(&o.prune, "prune", "delete what earlier applies of the --set created and the files do not have any more")
	fs.String(&o.set, "set", "NAME", "with --prune: the set that the files are, of all times that they are applied")
}

// checkSet refuses one of the two without the other.
func checkSet(prune bool, set string) error {
	switch {
	case prune && set == "":
		return flags.Usagef("flag --prune needs --set NAME: what it deletes is what earlier applies of that set created")
	case set != "" && !prune:
		return flags.Usagef("flag --set needs --prune: a set is what is deleted from when the files change")
	}
	return nil
}

// Texts by what was done to an object.
var (
	appliedTexts = map[string]string{api.ApplyCreated: "Created", api.ApplyUpdated: "Updated", api.ApplyUnchanged: "Unchanged:", actionDeleted: "Deleted", actionMissing: "Not there:", actionBuiltin: "Kept, as it always exists:"}
	dryRunTexts  = map[string]string{api.ApplyCreated: "Would create", api.ApplyUpdated: "Would update", api.ApplyUnchanged: "Unchanged:", actionDeleted: "Would delete", actionMissing: "Not there:", actionBuiltin: "Kept, as it always exists:"}
)

func runApply(ctx context.Context, o *applyOptions) error {
	if o.saved != "" {
		return applyPlan(ctx, o)
	}
	if err := checkSet(o.prune, o.set); err != nil {
		return err
	}
	if o.prune && o.within > 0 {
		return flags.Usagef("flag --confirm-within cannot go with --prune: nothing that is deleted comes back")
	}
	if o.within > 0 {
		if o.dryRun {
			return flags.Usagef("flag --confirm-within cannot go with --dry-run")
		}
		docs, err := o.documents(ctx)
		if err != nil {
			return err
		}
		objects, err := objectsOf(docs)
		if err != nil {
			return err
		}
		return inDocuments(docs, o.applyPending(ctx, o.within, objects))
	}
	answer, err := o.send(ctx, o.dryRun)
	if err != nil {
		return err
	}
	results := answer.Results
	if err := errors.Join(o.warn(results), noteNotPruned(o.stderr, o.set, answer.Others)); err != nil {
		return err
	}
	pruned, failed := o.deleteAll(ctx, answer.Left, results)
	return errors.Join(o.showResults(append(results, pruned...)), failed)
}

// noteNotPruned says which objects of the files --prune will never delete.
func noteNotPruned(w io.Writer, set string, others []api.ObjectName) error {
	others = slices.DeleteFunc(others, func(n api.ObjectName) bool { return slices.Contains(undeletable, n) })
	if len(others) == 0 {
		return nil
	}
	objects := others[0].Kind + " " + others[0].Key
	if n := len(others); n > 1 {
		objects = fmt.Sprintf("%s and %d more", objects, n-1)
	}
	_, err := fmt.Fprintf(w, "note: %s: not created by the set %q, so --prune will not delete it\n", objects, set)
	return err
}

// showResults prints what was done to each object.
func (o *applyOptions) showResults(results []api.ApplyResult) error {
	if o.json {
		for i := range results {
			results[i].Before, results[i].After = nil, nil
		}
		return printJSON(o.out, append([]api.ApplyResult{}, results...))
	}
	texts := appliedTexts
	if o.dryRun {
		texts = dryRunTexts
	}
	for _, r := range results {
		line := texts[r.Action] + " " + r.Kind + " " + r.Key
		if o.quiet {
			line = r.Key
		}
		if err := printLines(o.out, []string{line}); err != nil {
			return err
		}
	}
	return nil
}

// documents reads the files, until ctx ends: one may be a pipe without a writer.
func (o *applyOptions) documents(ctx context.Context) ([]document, error) {
	if len(o.files) == 0 {
		return nil, flags.Usagef("--file is missing: -f FILE, -f DIRECTORY or -f - for standard input")
	}
	type read struct {
		docs []document
		err  error
	}
	done := make(chan read, 1)
	go func() { // opening a pipe, and reading a terminal, cannot be ended: the process does
		docs, err := readDocuments(o.stdin, o.files, o.manifests)
		done <- read{docs, err}
	}()
	select {
	case r := <-done:
		if r.err != nil {
			return nil, r.err
		}
		return o.withoutLeftOut(r.docs)
	case <-ctx.Done():
		return nil, fmt.Errorf("read %s: %w", strings.Join(o.files, ", "), ctx.Err())
	}
}

// withoutLeftOut returns the documents of kinds that there are, and names the others.
func (o *applyOptions) withoutLeftOut(docs []document) (kept []document, err error) {
	for _, d := range docs {
		if !d.isLeftOut() {
			kept = append(kept, d)
			continue
		}
		if _, err := fmt.Fprintf(o.stderr, "note: %s is left out: Contiv makes no storage and has no %s %s\n", d.where(), d.kind, d.key); err != nil {
			return nil, err
		}
	}
	if len(kept) == 0 {
		return nil, fmt.Errorf("%s: nothing is left to do", strings.Join(o.files, ", "))
	}
	return kept, nil
}

// objectsOf are documents as a request has them.
func objectsOf(docs []document) ([]json.RawMessage, error) {
	objects := make([]json.RawMessage, len(docs))
	for i, d := range docs {
		var err error
		if objects[i], err = json.Marshal(d.fields); err != nil {
			return nil, d.errorf("%w", err)
		}
	}
	return objects, nil
}

// inDocuments says of an error about objects in which documents they are.
func inDocuments(docs []document, err error) error {
	e, ok := errors.AsType[*api.ApplyError](err)
	if !ok || e.Index >= len(docs) {
		return err
	}
	var all []error
	for _, fault := range append([]*api.ApplyError{e}, e.More...) {
		if fault.Index < len(docs) {
			d := docs[fault.Index]
			if d.manifest { // the error names it
				all = append(all, d.errorf("%w", fault.Err))
				continue
			}
			all = append(all, fmt.Errorf("%s (%s %s): %w", d.where(), d.kind, d.key, fault.Err))
		}
	}
	return errors.Join(all...)
}

// send reads the documents and applies them, asking again while the server
// says that there is more to do.
func (o *applyOptions) send(ctx context.Context, dryRun bool) (last api.ApplyResponse, err error) {
	docs, err := o.documents(ctx)
	if err != nil {
		return last, err
	}
	return o.sendDocuments(ctx, docs, dryRun)
}

// sendDocuments is send for documents that are read.
func (o *applyOptions) sendDocuments(ctx context.Context, docs []document, dryRun bool) (last api.ApplyResponse, err error) {
	objects, err := objectsOf(docs)
	if err != nil {
		return last, err
	}
	req := api.ApplyRequest{Objects: objects, DryRun: dryRun, Set: o.set}
	client, err := o.client()
	if err != nil {
		return last, err
	}
	results := []api.ApplyResult{} // the first answer's: later answers find unchanged what the first request did
	done := 0
	for first := true; ; first = false {
		answer, err := client.Apply(ctx, req)
		if err != nil && done > 0 {
			return last, fmt.Errorf("%w\nat least %d of %d objects are applied; 'netctl apply' of the same files applies the rest", inDocuments(docs, err), done, len(docs))
		}
		if err != nil {
			return last, inDocuments(docs, err)
		}
		done = answer.Done
		if first && answer.Results != nil {
			results = answer.Results
		}
		if done >= len(docs) {
			answer.Results = results
			return answer, nil
		}
		if _, err := fmt.Fprintf(o.stderr, "%d of %d objects are applied\n", done, len(docs)); err != nil {
			return last, err
		}
	}
}

// warn says on standard error which parts of the objects have no effect: each sentence
// once, with the objects that it is about.
func (o *common) warn(results []api.ApplyResult) error {
	about := map[string][]string{}
	var texts []string
	for _, r := range results {
		for _, text := range r.Warnings {
			if about[text] == nil {
				texts = append(texts, text)
			}
			about[text] = append(about[text], r.Kind+" "+r.Key)
		}
	}
	for _, text := range texts {
		objects := about[text][0]
		if n := len(about[text]); n > 1 {
			objects = fmt.Sprintf("%s and %d more", objects, n-1)
		}
		if _, err := fmt.Fprintf(o.stderr, "warning: %s: %s\n", objects, text); err != nil {
			return err
		}
	}
	return nil
}

func newDiff(base common) *command {
	c := &command{
		name:     "diff",
		short:    "Show what apply would change; exits with 6 when there is something",
		examples: []string{"netctl diff -f blue.yaml"},
	}
	o := newApplyOptions(base, &c.flags)
	c.flags.Bool(&o.json, "json, j", "print a JSON array of the objects that differ, before and after")
	c.flags.Bool(&o.quiet, "quiet, q", "print the keys of the objects that differ only")
	c.run = bindRun(o, runDiff, nil)
	return c
}

func runDiff(ctx context.Context, o *applyOptions) error {
	answer, err := o.send(ctx, true)
	if err != nil {
		return err
	}
	results := answer.Results
	if err := o.warn(results); err != nil {
		return err
	}
	differ := []api.ApplyResult{} // not nil: JSON shows []
	for _, r := range results {
		if r.Action != api.ApplyUnchanged {
			differ = append(differ, r)
		}
	}
	if o.json {
		if err := printJSON(o.out, differ); err != nil {
			return err
		}
	}
	for _, r := range differ {
		text := r.Key + "\n"
		if !o.quiet {
			if text, err = diffText(r); err != nil {
				return err
			}
		}
		if o.json {
			break
		}
		if _, err := io.WriteString(o.out, text); err != nil {
			return err
		}
	}
	if len(differ) > 0 {
		return errDiffers
	}
	return nil
}

// diffText shows an object field by field: - is now, + would be.
func diffText(r api.ApplyResult) (string, error) {
	typ, _, err := documentType(r.Kind)
	if err != nil {
		return "", err
	}
	sides := [2]struct {
		names []string
		texts map[string]string
	}{}
	for i, data := range []json.RawMessage{r.Before, r.After} {
		o := reflect.New(typ)
		if len(data) > 0 {
			if err := json.Unmarshal(data, o.Interface()); err != nil {
				return "", fmt.Errorf("read the answer: %w", err)
			}
		}
		if sides[i].names, sides[i].texts, err = fieldTexts(o.Interface()); err != nil {
			return "", err
		}
	}
	before, after := sides[0], sides[1]
	var b strings.Builder
	mark := "~"
	if r.Action == api.ApplyCreated {
		mark = "+"
	}
	fmt.Fprintf(&b, "%s %s %s\n", mark, r.Kind, r.Key)
	for f := range typ.Fields() {
		name := jsonName(f)
		was, now := before.texts[name], after.texts[name]
		if was == now {
			continue
		}
		if was != "" {
			fmt.Fprintf(&b, "-   %s: %s\n", name, was)
		}
		if now != "" {
			fmt.Fprintf(&b, "+   %s: %s\n", name, now)
		}
	}
	return b.String(), nil
}
