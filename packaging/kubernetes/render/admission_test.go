package main

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/cel/environment"
	"sigs.k8s.io/yaml"
)

// tenantPolicy is the policy of admission.yaml as an API server compiles it.
func tenantPolicy(t *testing.T) validating.Validator {
	t.Helper()
	text, err := os.ReadFile("../admission.yaml")
	if err != nil {
		t.Fatal(err)
	}
	first, second, _ := bytes.Cut(text, []byte("\n---\n"))
	var p admissionv1.ValidatingAdmissionPolicy
	if err := yaml.UnmarshalStrict(first, &p); err != nil {
		t.Fatal(err)
	}
	var b admissionv1.ValidatingAdmissionPolicyBinding
	if err := yaml.UnmarshalStrict(second, &b); err != nil || b.Spec.PolicyName != p.Name {
		t.Fatalf("%v: the binding is of %q", err, b.Spec.PolicyName)
	}
	compiler, err := cel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	if err != nil {
		t.Fatal(err)
	}
	with, without := cel.OptionalVariableDeclarations{HasAuthorizer: true}, cel.OptionalVariableDeclarations{}
	var variables []cel.NamedExpressionAccessor
	for _, v := range p.Spec.Variables {
		variables = append(variables, &validating.Variable{Name: v.Name, Expression: v.Expression})
	}
	compiler.CompileAndStoreVariables(variables, with, environment.NewExpressions)
	var conditions, validations, messages []cel.ExpressionAccessor
	for i := range p.Spec.MatchConditions {
		conditions = append(conditions, (*matchconditions.MatchCondition)(&p.Spec.MatchConditions[i]))
	}
	for _, v := range p.Spec.Validations {
		validations = append(validations, &validating.ValidationCondition{Expression: v.Expression, Message: v.Message, Reason: v.Reason})
		message := cel.ExpressionAccessor(nil)
		if v.MessageExpression != "" {
			message = &validating.MessageExpressionCondition{MessageExpression: v.MessageExpression}
		}
		messages = append(messages, message)
	}
	all := func(of []cel.ExpressionAccessor, vars cel.OptionalVariableDeclarations) cel.ConditionEvaluator {
		c := compiler.CompileCondition(of, vars, environment.NewExpressions)
		if errs := c.CompilationErrors(); len(errs) > 0 {
			t.Fatal(errs)
		}
		return c
	}
	matcher := matchconditions.NewMatcher(all(conditions, with), p.Spec.FailurePolicy, "policy", "validate", p.Name)
	return validating.NewValidator(all(validations, with), matcher, all(nil, with), all(messages, without), p.Spec.FailurePolicy, nil)
}

// grants are users who may use one tenant each, by name; * = all of them.
type grants map[string]string

func (g grants) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	of := g[a.GetUser().GetName()]
	if a.GetAPIGroup() == "contiv.io" && a.GetResource() == "tenants" && a.GetVerb() == "use" && (of == "*" || of == a.GetName()) {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

// TestTenantsObjectsAreForTheirUsers: objects of a tenant are for users who may use it, whatever they do; Kubernetes'
// own controllers go on, and an annotation that would have no effect is refused.
func TestTenantsObjectsAreForTheirUsers(t *testing.T) {
	policy, may := tenantPolicy(t), grants{"root": "*", "anna": "blue"}
	for _, tc := range []struct {
		user, groups string
		operation    admission.Operation
		kind, object string
		words        string // "" = it is admitted
	}{
		{"root", "", admission.Create, "Network", `{metadata: {name: n}, spec: {tenantName: red}}`, ""},
		{"anna", "", admission.Create, "Policy", `{metadata: {name: p}, spec: {tenantName: blue}}`, ""},
		{"anna", "", admission.Update, "Policy", `{metadata: {name: p}, spec: {tenantName: blue}}`, ""},
		{"anna", "", admission.Delete, "Policy", `{metadata: {name: p}, spec: {tenantName: blue}}`, ""},
		{"anna", "", admission.Create, "Policy", `{metadata: {name: p}, spec: {tenantName: red}}`, "anna may not write objects of tenant red: that needs the verb use on tenants.contiv.io, resourceName red"},
		{"anna", "", admission.Update, "Policy", `{metadata: {name: p}, spec: {tenantName: red}}`, "tenant red"},
		{"anna", "", admission.Delete, "Policy", `{metadata: {name: p}, spec: {tenantName: red}}`, "tenant red"},
		{"anna", "", admission.Create, "EndpointGroup", `{metadata: {name: g}, spec: {}}`, "tenant default"},
		{"anna", "", admission.Create, "Tenant", `{metadata: {name: blue}, spec: {}}`, ""},
		{"anna", "", admission.Create, "Tenant", `{metadata: {name: blue}, spec: {tenantName: red}}`, "tenant red"},
		{"anna", "", admission.Create, "Tenant", `{metadata: {name: red}, spec: {}}`, "tenant red"},
		{"gc", "system:serviceaccounts:kube-system", admission.Delete, "Policy", `{metadata: {name: p}, spec: {tenantName: red}}`, ""},
		{"system:kube-controller-manager", "", admission.Delete, "Policy", `{metadata: {name: p}, spec: {tenantName: red}}`, ""},
		{"root", "", admission.Create, "Network", `{metadata: {name: n, annotations: {contiv.io/adopt: "true"}}, spec: {}}`, ""},
		{"root", "", admission.Create, "Network", `{metadata: {name: n, annotations: {contiv.io/adopt: "yes"}}, spec: {}}`, `annotation contiv.io/adopt must be "true" or "false"`},
		{"root", "", admission.Delete, "Network", `{metadata: {name: n, annotations: {contiv.io/adopt: "yes"}}, spec: {}}`, ""},
	} {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(tc.object), &o.Object); err != nil {
			t.Fatal(err)
		}
		kind := schema.GroupVersionKind{Group: "contiv.io", Version: "v1alpha1", Kind: tc.kind}
		o.SetGroupVersionKind(kind)
		var now, old runtime.Object
		if tc.operation != admission.Delete {
			now = o
		}
		if tc.operation != admission.Create {
			old = o
		}
		of := kind.GroupVersion().WithResource(strings.ToLower(tc.kind) + "s")
		attributes := admission.NewAttributesRecord(now, old, kind, "", o.GetName(), of, "", tc.operation, nil, false, &user.DefaultInfo{Name: tc.user, Groups: strings.Fields(tc.groups)})
		versioned, err := admission.NewVersionedAttributes(attributes, kind, nil)
		if err != nil {
			t.Fatal(err)
		}
		var said []string
		for _, d := range policy.Validate(t.Context(), of, versioned, nil, nil, celconfig.RuntimeCELCostBudget, may).Decisions {
			if d.Action != validating.ActionAdmit {
				said = append(said, d.Message)
			}
		}
		if got := strings.Join(said, "; "); tc.words == "" && got != "" || !strings.Contains(got, tc.words) {
			t.Errorf("%s, %s of %s %s: %q, want %q", tc.user, tc.operation, tc.kind, tc.object, got, tc.words)
		}
	}
}
