// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package quota_test

import (
	"fmt"

	"github.com/kubetenant/kubetenant/plugins/quota"
)

func ExampleResources() {
	fmt.Println(quota.Resources("limits.cpu"))
	fmt.Println(quota.Resources("count/deployments.apps"))
	fmt.Println(quota.Resources("requests.example.com/gpu"))
	// Output:
	// [pods]
	// [deployments.apps]
	// [pods resourceclaims.resource.k8s.io]
}
