package objects

import "strings"

// UseTenant is the verb of RBAC that allows a user to write objects of a tenant.
const UseTenant = "use"

// Admission returns the ValidatingAdmissionPolicy of all kinds, and its binding, as YAML. It
// checks what a schema cannot: who writes an object, and its annotations.
func Admission() ([]byte, error) {
	var plurals []string
	for _, k := range Kinds() {
		plurals = append(plurals, k.Plural)
	}
	const admission, name = "admissionregistration.k8s.io/v1", "contiv-tenants"
	return manifest(props{
		"apiVersion": admission, "kind": "ValidatingAdmissionPolicy", "metadata": props{"name": name},
		"spec": props{
			"failurePolicy": "Fail",
			"matchConstraints": props{"resourceRules": []props{{
				"apiGroups": []string{GroupVersion.Group}, "apiVersions": []string{GroupVersion.Version},
				"operations": []string{"CREATE", "UPDATE", "DELETE"}, "resources": plurals,
			}}},
			// Kubernetes' controllers write what users asked them to, as the garbage collector does.
			"matchConditions": []props{{
				"name": "no-controller", "expression": "!('system:serviceaccounts:kube-system' in request.userInfo.?groups.orValue([])) && request.userInfo.username != 'system:kube-controller-manager'",
			}},
			"variables": []props{
				{"name": "it", "expression": "object == null ? oldObject : object"},
				{"name": "tenant", "expression": "variables.it.spec.?tenantName.orValue(request.kind.kind == 'Tenant' ? variables.it.metadata.name : 'default')"},
			},
			"validations": []props{
				{
					"expression": "authorizer.group('" + GroupVersion.Group + "').resource('" + Tenants + "').name(variables.tenant).check('" + UseTenant + "').allowed()",
					"reason":     "Forbidden",
					"messageExpression": strings.Join([]string{
						"request.userInfo.username + ' may not write objects of tenant ' + variables.tenant",
						"': that needs the verb " + UseTenant + " on " + Tenants + "." + GroupVersion.Group + ", resourceName ' + variables.tenant",
					}, " + "),
				},
				{
					"expression": "request.operation == 'DELETE' || object.metadata.?annotations[?'" + Adopt + "'].orValue('true') in ['true', 'false']",
					"message":    "annotation " + Adopt + " must be \"true\" or \"false\"",
				},
			},
		},
	}, props{
		"apiVersion": admission, "kind": "ValidatingAdmissionPolicyBinding", "metadata": props{"name": name},
		"spec": props{"policyName": name, "validationActions": []string{"Deny"}},
	})
}
