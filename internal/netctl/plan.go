package netctl

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/base/flags"
)

const formMarkdown = "markdown"

func newPlan(base common, namespace string) *command {
	c := &command{
		name:  "plan",
		short: fmt.Sprintf("Show which connections applying YAML documents or manifests of Kubernetes would open and close, change nothing; exits with %d when something would change", ExitDiffers),
		examples: []string{
			"netctl plan -f blue.yaml",
			"netctl plan -n shop -f networkpolicy.yaml",
			"netctl plan -f blue.d/ --prune --set blue -o markdown",
			"netctl plan -f blue.yaml -o json > plan.json; netctl apply --plan plan.json",
		},
	}
	o := newApplyOptions(base, &c.flags)
	setFlags(o, &c.flags)
	o.form, o.manifests, o.namespace = formTable, true, namespace
	c.flags.String(&o.namespace, "namespace, n", "NAMESPACE", "namespace of Kubernetes' objects that name none; default for none")
	c.flags.Enum(&o.form, "output, o", strings.Join([]string{formTable, formJSON, formMarkdown}, "|"), "form of the plan; json is as 'apply --plan' takes it", formTable, formJSON, formMarkdown)
	c.flags.Bool(&o.json, "json, j", "the same as -o json")
	c.flags.Bool(&o.quiet, "quiet, q", "print nothing: the exit code says whether something would change")
	c.run = bindRun(o, runPlan, nil)
	return c
}

func runPlan(ctx context.Context, o *applyOptions) error {
	if err := checkSet(o.prune, o.set); err != nil {
		return err
	}
	docs, err := o.documents(ctx)
	if err != nil {
		return err
	}
	for _, d := range docs {
		if d.manifest && o.prune {
			return d.errorf("is a manifest of Kubernetes, and a --set has none: plan it without --prune")
		}
		d.inNamespace(o.namespace)
	}
	p := savedPlan{Set: o.set}
	objects, err := objectsOf(docs)
	if err != nil {
		return err
	}
	for i, object := range objects {
		change := api.PlanChange{Set: object}
		if docs[i].manifest {
			change = api.PlanChange{Manifest: object}
		}
		p.Request.Changes = append(p.Request.Changes, change)
	}
	if o.prune {
		if err := p.addPruned(ctx, o); err != nil {
			return err
		}
	}
	err = p.ask(ctx, &o.common)
	if e, ok := errors.AsType[*api.Error](err); ok && len(p.Request.Changes) == 1 && e.Kind != api.KindNoRoute && !isForbidden(err) && !api.IsUnavailable(err) {
		err = &api.ApplyError{Err: e} // which netmaster says of lists only
	}
	return inDocuments(docs, err)
}

// addPruned adds the deletions of what the set has and the files do not have any more.
func (p *savedPlan) addPruned(ctx context.Context, o *applyOptions) error {
	answer, err := o.send(ctx, true)
	if err != nil {
		return err
	}
	if err := noteNotPruned(o.stderr, o.set, answer.Others); err != nil {
		return err
	}
	return p.addDeletions(ctx, o, answer.Left, answer.Results)
}

// addDeletions adds the deletions of objects, as deleteAll makes them after others are applied,
// and notes what stays.
func (p *savedPlan) addDeletions(ctx context.Context, o *applyOptions, objects []api.ObjectName, after []api.ApplyResult) error {
	dry := *o
	dry.dryRun = true
	results, stays := dry.deleteAll(ctx, objects, after)
	if stays != nil {
		if _, err := fmt.Fprintf(o.stderr, "note: %v\n", stays); err != nil {
			return err
		}
	}
	policies := map[string]bool{}
	for _, r := range results {
		policies[r.Key] = policies[r.Key] || r.Kind == "policy" && r.Action == actionDeleted
	}
	for _, r := range results {
		withPolicy := r.Kind == "rule" && policies[r.Key[:strings.LastIndexByte(r.Key, ':')]]
		if r.Action == actionDeleted && r.Kind != endpointKind && !withPolicy { // endpoints of documents have no connections
			p.Request.Changes = append(p.Request.Changes, api.PlanChange{Delete: &api.ObjectName{Kind: r.Kind, Key: r.Key}})
		}
	}
	return nil
}

// savedPlan is a plan as -o json writes it: with what was asked.
type savedPlan struct {
	api.Plan
	Set     string          `json:"set,omitempty"`
	Request api.PlanRequest `json:"request"`
}

// ask asks for a plan and shows it. It is errDiffers if something would change.
func (p savedPlan) ask(ctx context.Context, o *common) error {
	client, err := o.client()
	if err != nil {
		return err
	}
	if p.Plan, err = client.Plan(ctx, p.Request); err != nil {
		if api.KindOf(err) == api.KindNoRoute {
			err = fmt.Errorf("%w (earlier netmasters do not make plans)", err)
		}
		return err
	}
	if err := errors.Join(o.warn(p.Objects), p.show(o)); err != nil {
		return err
	}
	if p.Changes {
		return errDiffers
	}
	return nil
}

func (p savedPlan) show(o *common) error {
	switch {
	case o.quiet:
		return nil
	case o.json, o.form == formJSON:
		return printJSON(o.out, p)
	}
	if err := noteUnconfirmed(o.stderr, p.Unconfirmed); err != nil {
		return err
	}
	show, mark := printTable, ""
	if o.form == formMarkdown {
		show, mark = printMarkdown, "### "
	}
	if !p.Changes {
		at := ""
		if p.Revision != 0 {
			at = fmt.Sprintf(" (revision %d)", p.Revision)
		}
		_, err := fmt.Fprintf(o.out, "%sNothing would change%s\n", mark, at)
		return err
	}
	_, err := fmt.Fprintf(o.out, "%sPlan for revision %d: %s\n\n", mark, p.Revision, planSummary(p.Plan))
	if err != nil {
		return err
	}
	var objects, flows, services, clients [][]string
	for _, r := range p.Objects {
		if r.Action != api.ApplyUnchanged {
			objects = append(objects, []string{r.Action, r.Kind, r.Key})
		}
	}
	for _, f := range p.Flows {
		flows = append(flows, plannedFlowRow(f))
	}
	for _, s := range p.Services {
		notes := s.Changes
		if s.LosesLast {
			notes = append(slices.Clone(notes), "loses its last backend")
		}
		services = append(services, []string{s.Effect, s.Service, strconv.Itoa(s.Before), strconv.Itoa(s.After), strings.Join(notes, ", ")})
		for _, c := range s.Clients {
			clients = append(clients, []string{c.Effect, someOf(c.From), s.Service, someOf(c.At)})
		}
	}
	first := true
	for _, t := range []struct {
		header []string
		rows   [][]string
	}{
		{[]string{"Change", "Kind", "Object"}, objects},
		{[]string{"Effect", "From", "To", "Ports", "Before", "After"}, flows},
		{[]string{"Change", "Service", "Backends before", "after", "Note"}, services},
		{[]string{"Effect", "Clients", "Service", "At"}, clients},
	} {
		if len(t.rows) == 0 {
			continue
		}
		if !first {
			if _, err := fmt.Fprintln(o.out); err != nil {
				return err
			}
		}
		first = false
		if err := show(o.out, t.header, t.rows); err != nil {
			return err
		}
	}
	if text := cutsText(p.Cuts); text != "" {
		_, err = fmt.Fprintf(o.out, "\n%s\n", visible(text))
	}
	return err
}

// cutsText says which established connections would be cut; empty = no flow closes.
func cutsText(c *api.PlannedCuts) string {
	if c == nil {
		return ""
	}
	if c.Error != "" {
		return "Established connections are not counted: " + c.Error
	}
	var cut, unknown []string
	least := ""
	for _, h := range c.Hosts {
		if h.Connections > 0 {
			cut = append(cut, fmt.Sprintf("%d on %s", h.Connections, h.Host))
		}
		if h.More {
			least = "at least "
		}
		if h.Error != "" {
			unknown = append(unknown, h.Host+": "+h.Error)
		}
	}
	text := "No established connection would be cut"
	if c.Connections > 0 {
		text = fmt.Sprintf("%d established connections would be cut: %s%s", c.Connections, least, strings.Join(cut, ", "))
		if c.Connections == 1 {
			text = "1 established connection would be cut: " + least + cut[0]
		}
	}
	if unknown != nil {
		text += "; not known of " + strings.Join(unknown, ", ")
	}
	return text
}

// planSummary counts what would change.
func planSummary(p api.Plan) string {
	objects, closes, opens, last := 0, 0, 0, 0
	for _, r := range p.Objects {
		if r.Action != api.ApplyUnchanged {
			objects++
		}
	}
	for _, f := range p.Flows {
		if f.Effect == api.FlowOpens {
			opens++
		} else {
			closes++
		}
	}
	for _, s := range p.Services {
		if s.LosesLast {
			last++
		}
	}
	text := fmt.Sprintf("%s, ", plural(objects, "object changes", "objects change"))
	switch {
	case closes+opens > 0:
		text += fmt.Sprintf("%s, %s", plural(closes, "flow closes", "flows close"), plural(opens, "flow opens", "flows open"))
	case len(p.Services) > 0:
		text += "no connection opens or closes but by services"
	default:
		text += "no connection opens or closes"
	}
	if len(p.Services) > 0 {
		text += ", " + plural(len(p.Services), "service changes", "services change")
	}
	if last > 0 {
		text += ", " + plural(last, "service loses its last backend", "services lose their last backend")
	}
	return text
}

func plural(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}

func plannedFlowRow(f api.PlannedFlow) []string {
	ports := strings.Join(f.Ports, ",")
	if len(f.Families) == 1 && strings.Contains(f.From[0]+f.To[0], ":") && !strings.Contains(f.From[0]+f.To[0], "/") {
		ports += " " + f.Families[0]
	}
	before, after := plannedDecisionText(f.Before, f.After)
	return []string{f.Effect, someOf(f.From), someOf(f.To), ports, before, after}
}

// plannedDecisionText says who decides before and after, and the routes where they differ.
func plannedDecisionText(before, after api.PlannedDecision) (b, a string) {
	text := func(d, other api.PlannedDecision) string {
		if d.Missing != "" {
			return "no route: " + d.Missing
		}
		parts := decisionTexts(d.Decisions)
		if d.Route != other.Route {
			parts = append([]string{"route " + d.Route}, parts...)
		}
		return strings.Join(parts, "; ")
	}
	return text(before, after), text(after, before)
}

// printMarkdown prints a table as pull requests show it.
func printMarkdown(w io.Writer, header []string, rows [][]string) error {
	var b strings.Builder
	line := func(cells []string) {
		for _, cell := range cells {
			b.WriteString("| " + strings.ReplaceAll(visible(cell), "|", `\|`) + " ")
		}
		b.WriteString("|\n")
	}
	rule := make([]string, len(header))
	for i := range rule {
		rule[i] = "---"
	}
	line(header)
	line(rule)
	for _, row := range rows {
		line(row)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// writeFlags are the flags of commands that change an object.
func writeFlags(fs *flags.Set, o *common, jsonNames, jsonUsage string) {
	o.changeFlags(fs, jsonNames, jsonUsage)
	planFlag(fs, &o.plan)
	o.overrideFlag(fs)
}

// overrideFlag is the flag of changes that assertions refuse.
func (o *common) overrideFlag(fs *flags.Set) {
	fs.String(&o.globals.override, "override", "REASON", "make the change even if it breaks assertions; for cluster administrators, and audited")
}

func planFlag(fs *flags.Set, plan *bool) {
	fs.Bool(plan, "plan", fmt.Sprintf("show which connections the change would open and close, change nothing; exits with %d when something would change", ExitDiffers))
}

// client is the session's. With --plan it sends no change: interceptChange.
func (o *common) client() (*api.Client, error) {
	if o.plan {
		o.planning = o
	}
	return o.session.client()
}

// plannedError is a change that a command with --plan would send.
type plannedError struct {
	command *common
	change  api.PlanChange
}

func (e *plannedError) Error() string { return "it is planned, and not made" }

// planPath is what a command with --plan may send.
const planPath = "/api/v1/analysis/plan"

// interceptChange has a command with --plan end where it would send a change.
func interceptChange(s *session) func(method, path string, body []byte) error {
	return func(method, path string, body []byte) error {
		if s.planning == nil || path == planPath {
			return nil
		}
		change, err := plannedChange(method, path, body)
		if err != nil {
			return err
		}
		return &plannedError{s.planning, change}
	}
}

// plannedChange is the change that a request makes.
func plannedChange(method, path string, body []byte) (c api.PlanChange, err error) {
	parts := strings.Split(strings.Trim(strings.TrimPrefix(path, "/api/v1/"), "/"), "/")
	for i := range parts {
		if parts[i], err = url.PathUnescape(parts[i]); err != nil {
			return c, err
		}
	}
	if len(parts) == 4 && parts[2] == "rules" {
		if method == http.MethodDelete {
			return api.PlanChange{DeleteRule: &api.PlanRuleRemoval{Policy: parts[1], RuleID: parts[3]}}, nil
		}
		return api.PlanChange{SetRule: &api.PlanRule{Policy: parts[1], RuleID: parts[3], Rule: body}}, nil
	}
	for _, k := range objectKinds() {
		if len(parts) != 2 || k.path != parts[0] {
			continue
		}
		if method == http.MethodDelete {
			return api.PlanChange{Delete: &api.ObjectName{Kind: k.name, Key: parts[1]}}, nil
		}
		c.Set, err = ofKind(k.name, json.RawMessage(body))
		return c, err
	}
	if path == "/api/v1/pending" {
		return c, flags.Usagef("flag --plan cannot go with --confirm-within")
	}
	return c, flags.Usagef("flag --plan: this change cannot be planned (%s %s)", method, path)
}

// planned shows the plan of a change with which a command with --plan has ended.
func planned(ctx context.Context, err error) error {
	if p, ok := errors.AsType[*plannedError](err); ok {
		return savedPlan{Request: api.PlanRequest{Changes: []api.PlanChange{p.change}}}.ask(ctx, p.command)
	}
	return err
}

// readPlan reads a plan as -o json has written it.
func readPlan(stdin io.Reader, file string) (p savedPlan, err error) {
	var data []byte
	if file == "-" {
		data, err = io.ReadAll(stdin)
	} else {
		data, err = os.ReadFile(file)
	}
	if err != nil {
		return p, pathError(err)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&p); err != nil {
		return p, fmt.Errorf("%s: is not a plan as 'netctl plan -o json' writes it: %w", file, err)
	}
	if p.ID == "" || len(p.Request.Changes) == 0 {
		return p, fmt.Errorf("%s: is not a plan as 'netctl plan -o json' writes it: it has no id or no request", file)
	}
	return p, nil
}

// applyPlan makes the changes of a saved plan.
func applyPlan(ctx context.Context, o *applyOptions) error {
	if len(o.files) > 0 || o.prune || o.set != "" || o.dryRun || o.within > 0 {
		return flags.Usagef("flag --plan takes no other flag beside it: the plan says what is applied")
	}
	p, err := readPlan(o.stdin, o.saved)
	if err != nil {
		return err
	}
	client, err := o.client()
	if err != nil {
		return err
	}
	answer, err := client.ApplyPlan(ctx, api.ApplyPlanRequest{Changes: p.Request.Changes, Set: p.Set, Revision: p.Revision, ID: p.ID})
	if err != nil {
		return err
	}
	return o.showResults(answer.Results)
}
