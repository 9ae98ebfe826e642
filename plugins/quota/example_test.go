package quota_test

import (
	"fmt"

	"github.com/kubetenant/kubetenant/plugins/quota"
)

func ExampleResource() {
	fmt.Println(quota.Resource("limits.cpu"))
	fmt.Println(quota.Resource("count/deployments.apps"))
	// Output:
	// pods true
	// deployments.apps true
}
