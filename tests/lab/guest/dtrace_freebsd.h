/*
 * What the FreeBSD variants of the D scripts take from the CTF of a FreeBSD kernel, so that they can
 * be compiled elsewhere. Only the members that they use, with the types that these have there.
 */
struct standin_spa { char spa_name[256]; };
struct standin_dataset { uint64_t ds_object; };
typedef struct standin_os {
	struct standin_dataset *os_dsl_dataset;
	struct standin_spa *os_spa;
} objset_t;
struct standin_zfsvfs { objset_t *z_os; };
typedef struct standin_znode { struct standin_zfsvfs *z_zfsvfs; } znode_t;
typedef struct standin_zilog { struct standin_spa *zl_spa; struct standin_os *zl_os; } zilog_t;
struct standin_queue { uint32_t vq_cactive[10]; };
struct standin_vdev { uint64_t vdev_guid; struct standin_queue vdev_queue; };
struct standin_thread { int td_tid; char td_name[20]; };
typedef struct standin_zio {
	void *io_private;
	int io_type;
	int io_priority;
	uint64_t io_size;
	struct standin_spa *io_spa;
	struct standin_vdev *io_vd;
	int64_t io_delta;
	int64_t io_delay;
} zio_t;
struct standin_pool { uint64_t dp_dirty_total; };
typedef struct standin_tx { struct standin_pool *tx_pool; int tx_wait_dirty; } dmu_tx_t;
struct standin_provider { char *name; };
struct standin_bio { void *bio_caller1; struct standin_provider *bio_to; };
typedef struct standin_zfs_uio { struct uio *uio; } zfs_uio_t;
struct uio { int64_t uio_resid; };
