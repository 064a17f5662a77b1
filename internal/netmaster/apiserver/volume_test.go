package apiserver

var _ = tested("volumes", kindCases{
	object: `{"tenantName":"blue","volumeName":"x"}`, key: []string{"tenantName", "volumeName"}, fields: storageCases("volumeName"),
})

func storageCases(name string) map[string]cases {
	return map[string]cases{
		"tenantName": tenantCases(), name: nameCases(name), "datastoreType": textCases("datastoreType"),
		"mountPoint": textCases("mountPoint"), "poolName": textCases("poolName"), "size": textCases("size"),
	}
}
