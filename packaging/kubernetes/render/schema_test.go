package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"
)

// crd is a kind of crds.yaml, with what an API server judges objects by.
type crd struct {
	internal   *apiextensions.CustomResourceDefinition
	structural *structuralschema.Structural
	schema     validation.SchemaValidator
	rules      *cel.Validator
}

// crds returns the kinds of crds.yaml by their names.
func crds(t *testing.T) map[string]crd {
	t.Helper()
	text, err := os.ReadFile("../crds.yaml")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]crd{}
	for d := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text))); ; {
		doc, err := d.Read()
		if errors.Is(err, io.EOF) {
			return all
		}
		var v1 apiextensionsv1.CustomResourceDefinition
		if err == nil {
			err = yaml.UnmarshalStrict(doc, &v1)
		}
		if err != nil {
			t.Fatal(err)
		}
		apiextensionsv1.SetDefaults_CustomResourceDefinition(&v1)
		apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&v1.Spec)
		v1.Status.StoredVersions = []string{v1.Spec.Versions[0].Name}
		c := crd{internal: &apiextensions.CustomResourceDefinition{}}
		if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(&v1, c.internal, nil); err != nil {
			t.Fatal(err)
		}
		schema, err := apiextensions.GetSchemaForVersion(c.internal, v1.Spec.Versions[0].Name)
		if err == nil {
			c.structural, err = structuralschema.NewStructural(schema.OpenAPIV3Schema)
		}
		if err == nil {
			c.schema, _, err = validation.NewSchemaValidator(schema.OpenAPIV3Schema)
		}
		if err != nil {
			t.Fatal(err)
		}
		c.rules = cel.NewValidator(c.structural, true, celconfig.PerCallLimit)
		all[v1.Spec.Names.Kind] = c
	}
}

// judge is what an API server with strict validation says of an object with a spec, and of
// a change of it where old is one.
func (c crd) judge(t *testing.T, name, spec, old string) string {
	t.Helper()
	object := func(spec string) map[string]any {
		o := map[string]any{}
		text := fmt.Sprintf("{apiVersion: contiv.io/v1alpha1, kind: %s, metadata: {name: %s}, spec: %s}", c.internal.Spec.Names.Kind, name, spec)
		if err := yaml.Unmarshal([]byte(text), &o); err != nil {
			t.Fatal(err)
		}
		return o
	}
	is := object(spec)
	var unknown structuralschema.UnknownFieldPathOptions
	unknown.TrackUnknownFieldPaths = true
	var said []string
	for _, path := range pruning.PruneWithOptions(is, c.structural, true, unknown) {
		said = append(said, "unknown field "+path)
	}
	defaulting.Default(is, c.structural)
	var was any
	if old != "" {
		o := object(old)
		defaulting.Default(o, c.structural)
		was = o
	}
	errs := append(validation.ValidateCustomResource(nil, is, c.schema), listtype.ValidateListSetsAndMaps(nil, c.structural, is)...)
	if len(errs) == 0 {
		errs, _ = c.rules.Validate(t.Context(), nil, c.structural, is, was, celconfig.RuntimeCELCostBudget)
	}
	for _, err := range errs {
		said = append(said, err.Error())
	}
	return strings.Join(said, "; ")
}

// TestDefinitionsAreValid: an API server takes the definitions; each has a status with conditions
// that are merged by type, and columns that say whether and why not.
func TestDefinitionsAreValid(t *testing.T) {
	all := crds(t)
	if len(all) != 5 {
		t.Fatalf("%d kinds", len(all))
	}
	for kind, c := range all {
		if errs := crdvalidation.ValidateCustomResourceDefinition(t.Context(), c.internal); len(errs) > 0 {
			t.Errorf("%s: %v", kind, errs)
		}
		conditions := c.structural.Properties["status"].Properties["conditions"]
		if of := conditions.XListType; of == nil || *of != "map" || !slices.Equal(conditions.XListMapKeys, []string{"type"}) {
			t.Errorf("%s: conditions %+v", kind, conditions.Extensions)
		}
		version := c.internal.Spec.Versions[0].Name
		shown, err := apiextensions.GetColumnsForVersion(c.internal, version)
		if err != nil {
			t.Fatal(err)
		}
		var columns []string
		for _, p := range shown {
			columns = append(columns, p.Name)
		}
		for _, want := range []string{"Ready", "Reason", "Age", "Message"} {
			if !slices.Contains(columns, want) {
				t.Errorf("%s: no column %s: %v", kind, want, columns)
			}
		}
		if of, err := apiextensions.GetSubresourcesForVersion(c.internal, version); err != nil || of == nil || of.Status == nil {
			t.Errorf("%s has no status of its own: %v", kind, err)
		}
	}
}

// TestSchemasRefuseWithAReason: what a schema can refuse is refused with words that say why; all fields
// together are taken.
func TestSchemasRefuseWithAReason(t *testing.T) {
	all := crds(t)
	long := strings.Repeat("x", 65)
	rule := func(rest string) string {
		return `{rules: [{ruleId: "1", direction: in, action: allow` + rest + `}]}`
	}
	for _, tc := range []struct{ kind, name, spec, old, words string }{
		{"Tenant", "a", `{}`, "", ""},
		{"Tenant", "all", `{tenantName: ALL, defaultNetwork: net, sharedNetworks: ["a.b:c-d", "all:x"]}`, "", ""},
		{"Tenant", long, `{}`, "", "give spec.tenantName"},
		{"Tenant", "a", `{tenantNam: b}`, "", "unknown field spec.tenantNam"},
		{"Tenant", "a", `{tenantName: a_b}`, "", "spec.tenantName"},
		{"Tenant", "a", `{sharedNetworks: ["b:c", "b:c"]}`, "", "Duplicate"},
		{"Tenant", "a", `{sharedNetworks: ["b:c", "a:c"]}`, "", "a tenant reaches its own networks"},
		{"Tenant", "a", `{tenantName: b, sharedNetworks: ["b:c"]}`, "", "a tenant reaches its own networks"},
		{"Tenant", "a", `{tenantName: b}`, `{}`, "tenantName cannot change"},
		{"Network", "all", `{tenantName: default, networkName: All.1, nwType: data, encap: vxlan, pktTag: 7, subnet: 10.7.1.10-10.7.1.50/24, gateway: 10.7.1.1, ipv6Subnet: "2001:db8::/64", ipv6Gateway: "2001:db8::1", cfgdTag: a.b, native: true}`, "", ""},
		{"Network", "a", `{}`, "", "must have subnet, ipv6Subnet, or both"},
		{"Network", "a", `{subnet: 10.1.0.256/24}`, "", "spec.subnet"},
		{"Network", "a", `{subnet: "fd00::/64"}`, "", "spec.subnet"},
		{"Network", "a", `{subnet: 10.1.0.0/16, pktTag: "7"}`, "", "must be of type integer"},
		{"Network", "a", `{subnet: 10.1.0.0/16, native: true, nwType: infra}`, "", "native is for networks of tenant default"},
		{"Network", "a", `{subnet: 10.1.0.0/16}`, `{subnet: 10.2.0.0/16}`, "a network cannot change"},
		{"EndpointGroup", "all", `{tenantName: T, groupName: G, networkName: net, policies: [a], netProfile: x, ipPool: 10.1.1.1-10.1.1.9, extContractsGrps: [e], cfgdTag: x}`, "", ""},
		{"EndpointGroup", "a", `{networkName: b}`, `{networkName: b, policies: [c]}`, ""},
		{"EndpointGroup", "a", `{}`, "", "spec.networkName"},
		{"EndpointGroup", "a", `{networkName: a}`, "", "cannot have the name of its network"},
		{"EndpointGroup", "a", `{networkName: b, groupName: b}`, "", "cannot have the name of its network"},
		{"EndpointGroup", "a", `{networkName: b}`, `{networkName: c}`, "networkName cannot change"},
		{"Policy", "all", `{policyName: p, rules: [{ruleId: "1", direction: out, action: deny, priority: 100, protocol: "132", port: 1, toIpAddress: "fd00::/8"}]}`, "", ""},
		{"Policy", "a", rule(`, fromIpAddress: 10.1.0.0/16`), "", ""},
		{"Policy", "a", rule(`, fromIpAddress: "2001:db8::1"`), "", ""},
		{"Policy", "a", rule(`, fromIpAddress: 10.1.0.300`), "", "fromIpAddress"},
		{"Policy", "a", rule(`, fromIpAddress: 10.1.0.0/33`), "", "fromIpAddress"},
		{"Policy", "a", rule(`, fromIpAddress: "10"`), "", "fromIpAddress"},
		{"Policy", "a", rule(`, fromIpAddress: 10.1.1.1, fromEndpointGroup: g`), "", "one kind of peer at most"},
		{"Policy", "a", rule(`, toNetwork: net`), "", "direction in has no to fields"},
		{"Policy", "a", rule(`, port: 80, protocol: icmp`), "", "port needs protocol"},
		{"Policy", "a", rule(`}, {ruleId: "1", direction: out, action: deny`), "", "Duplicate"},
		{"Policy", "kubernetes.a.b", `{}`, "", "are reserved for NetworkPolicies"},
		{"NetProfile", "all", `{profileName: x, bandwidth: 10 kbps, DSCP: 63, burst: 2, receiveBandwidth: 2G, receiveBurst: 10486}`, "", ""},
		{"NetProfile", "a", `{bandwidth: fast}`, "", "spec.bandwidth"},
		{"NetProfile", "a", `{DSCP: 64}`, "", "spec.DSCP"},
	} {
		said := all[tc.kind].judge(t, tc.name, tc.spec, tc.old)
		if tc.words == "" && said != "" || !strings.Contains(said, tc.words) {
			t.Errorf("%s %s %s, before %q: %q, want %q", tc.kind, tc.name, tc.spec, tc.old, said, tc.words)
		}
	}
}
